-- Queues a failed job again, or one whose worker gave no sign of life lately, unless one of its tree waits already; gives the number
-- of the job that waits, and tells the workers. No row: it neither failed nor was left.
with job as materialized (
    select j.id, j.status, j.queue_name,
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
       set status = 'todo', attempts = j.attempts + (job.status = 'doing')::int, scheduled_at = now(),
           args = case when jsonb_typeof(j.args) = 'object' then j.args - 'error' else j.args end
      from job
     where j.id = job.id and job.waits is null
    returning pg_notify('procrastinate_queue_v1#' || j.queue_name, json_build_object('type', 'job_inserted', 'job_id', j.id)::text)
)
select coalesce(job.waits, job.id) as id
  from job
