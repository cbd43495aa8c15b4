-- Takes a job that waits or has failed out of the queue, or asks the worker that runs it to stop; gives the status that it had. No row:
-- it is over.
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
)
select job.status::text as status
  from job
