-- Queues a failed job again, or one whose worker gave no sign of life lately. No row: it is neither.
select pgmem_queue.procrastinate_retry_job_v2(j.id, now(), null, null, null)::text as done
  from pgmem_queue.procrastinate_jobs j
  left join pgmem_queue.procrastinate_workers w on w.id = j.worker_id
 where j.id = %(job)s
   and not j.abort_requested
   and (j.status = 'failed'
        or (j.status = 'doing' and coalesce(w.last_heartbeat < now() - make_interval(secs => %(seconds)s), true)))
