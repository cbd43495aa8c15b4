-- Takes a job away from a worker that died: it waits again, gives way to one of the same tree that waits already, or has failed
-- after so many runs. No row: somebody else has it by now, or it has ended.
with lost as materialized (
    select j.id,
           j.attempts + 1 >= %(most_runs)s as used_up,
           j.abort_requested
               or exists (
                      select
                        from pgmem_queue.procrastinate_jobs o
                       where o.queueing_lock = j.queueing_lock and o.status = 'todo'
                  ) as given_up
      from pgmem_queue.procrastinate_jobs j
     where j.id = %(job)s and j.status = 'doing' and j.worker_id is not distinct from %(worker)s
       for no key update of j
)
update pgmem_queue.procrastinate_jobs as j
   set status = (case when lost.given_up then 'aborted' when lost.used_up then 'failed' else 'todo' end)::
                pgmem_queue.procrastinate_job_status,
       attempts = j.attempts + 1,
       scheduled_at = now(),
       abort_requested = false
  from lost
 where j.id = lost.id
returning j.status::text as status
