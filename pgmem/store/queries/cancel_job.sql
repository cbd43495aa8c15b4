-- Takes a job that waits or has failed out of the queue, or asks the worker that runs it to stop; gives the status that it had. When one
-- was cancelled an event says: procrastinate's own trigger does so where it waited. No row: it is over.
with job as materialized (
    select j.id, j.status
      from pgmem_queue.procrastinate_jobs j
     where j.id = %(job)s
       and j.status in ('todo', 'doing', 'failed')
       for no key update of j
),
cancelled as (
    update pgmem_queue.procrastinate_jobs as j
       set status = case when job.status = 'doing' then job.status else 'cancelled' end,
           abort_requested = job.status = 'doing'
      from job
     where j.id = job.id
),
told as (
    insert into pgmem_queue.procrastinate_events (job_id, type)
    select job.id, 'cancelled'
      from job
     where job.status = 'failed'
)
select job.status::text as status
  from job
