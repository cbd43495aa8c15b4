-- Ends a run of a job, told by how many came before it: with a status, or, if that is null, so that it is run again, unless it is to
-- stop, one of the same tree waits already, or it was run so often. No row: somebody else has ended this run.
with run as materialized (
    select j.id,
           case
               when %(status)s::text is not null then %(status)s::text
               when j.abort_requested
                    or exists (
                           select
                             from pgmem_queue.procrastinate_jobs o
                            where o.queueing_lock = j.queueing_lock and o.status = 'todo'
                       ) then 'aborted'
               when mod(j.attempts + 1, %(most_runs)s::bigint) = 0 then 'failed'
               else 'todo'
           end as status
      from pgmem_queue.procrastinate_jobs j
     where j.id = %(job)s and j.status = 'doing' and j.attempts = %(runs)s
       for no key update of j
)
update pgmem_queue.procrastinate_jobs as j
   set status = run.status::pgmem_queue.procrastinate_job_status,
       attempts = j.attempts + 1,
       scheduled_at = case when run.status = 'todo' then now() + make_interval(secs => %(again_seconds)s) else j.scheduled_at end,
       abort_requested = false
  from run
 where j.id = run.id
returning j.status::text as status
