-- The jobs that were begun and whose worker gave no sign of life lately, or is forgotten.
select j.id, j.attempts as runs
  from pgmem_queue.procrastinate_jobs j
  left join pgmem_queue.procrastinate_workers w on w.id = j.worker_id
 where j.queue_name = %(queue)s
   and j.status = 'doing'
   and (w.id is null or w.last_heartbeat < now() - make_interval(secs => %(seconds)s))
 order by j.id
