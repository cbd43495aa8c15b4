-- Queues a failed job again, or one whose worker gave no sign of life lately, unless one of its tree waits already; gives the number
-- of the job that waits. No row: it neither failed nor was left.
with job as materialized (
    select j.id, j.status,
           (select o.id
              from pgmem_queue.procrastinate_jobs o
             where o.queueing_lock = j.queueing_lock and o.status = 'todo') as waits
      from pgmem_queue.procrastinate_jobs j
      left join pgmem_queue.procrastinate_workers w on w.id = j.worker_id
     where j.id = %(job)s
       and not j.abort_requested
       and (j.status = 'failed'
            or (j.status = 'doing' and coalesce(w.last_heartbeat < now() - make_interval(secs => %(seconds)s), true)))
       for no key update of j
),
queued as (
    update pgmem_queue.procrastinate_jobs as j
       set status = 'todo', attempts = j.attempts + (job.status = 'doing')::int, scheduled_at = now()
      from job
     where j.id = job.id and job.waits is null
)
select coalesce(job.waits, job.id) as id
  from job
