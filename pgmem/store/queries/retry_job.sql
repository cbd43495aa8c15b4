-- Queues a failed job again, or one whose worker gave no sign of life lately, unless another one of its tree waits already, and lets one
-- that waits for its next run be run now; gives the number of the job that waits, and tells the workers. A failed one begins a new round
-- of runs. No row: it is none of these.
-- What is asked of the job is asked once it is locked: it may have been begun anew meanwhile, by a worker that this statement cannot see.
with locked as materialized (
    select j.id, j.status, j.worker_id, j.attempts, j.args, j.queueing_lock, j.queue_name
      from pgmem_queue.procrastinate_jobs j
     where j.id = %(job)s
       and (j.status in ('failed', 'doing') or (j.status = 'todo' and j.scheduled_at > now()))
       and not j.abort_requested
       for no key update of j
),
job as materialized (
    select l.*,
           (select o.id
              from pgmem_queue.procrastinate_jobs o
             where o.queueing_lock = l.queueing_lock and o.status = 'todo' and o.id <> l.id) as waits
      from locked l
     where l.status <> 'doing'
        or l.worker_id is null
        or exists (
               select
                 from pgmem_queue.procrastinate_workers w
                where w.id = l.worker_id and w.last_heartbeat < now() - make_interval(secs => %(seconds)s)
           )
),
queued as (
    update pgmem_queue.procrastinate_jobs as j
       set status = 'todo', scheduled_at = now(),
           attempts = case job.status
                          when 'failed' then (least(job.attempts, 2147483640) + (%(most_runs)s::integer - 1))
                                                 / %(most_runs)s::integer * %(most_runs)s::integer
                          when 'doing' then least(job.attempts, 2147483646) + 1
                          else job.attempts
                      end,
           args = case when jsonb_typeof(job.args) = 'object' then job.args - 'error' else job.args end
      from job
     where j.id = job.id and job.waits is null
    returning pg_notify('procrastinate_queue_v1#' || job.queue_name, json_build_object('type', 'job_inserted', 'job_id', job.id)::text)
)
select coalesce(job.waits, job.id) as id
  from job
