-- Ends a run of a job, told by how many came before it: with a status, or, if that is null, so that it is run again, unless it was run
-- so often and its worker was not just stopped, or one of the same tree waits already, to which it hands its runs and its pause. What was
-- to stop and is not done is cancelled. Tells the workers where one may start at once. The count of runs tells a run, so it grows also
-- where a stop is not to be the last: by a whole round. No row: somebody else has ended this run.
with patience as materialized (
    select set_config('lock_timeout', %(patience)s::text, true)
),
run as materialized (
    select j.id, j.args, j.queue_name, j.scheduled_at, heir.id as heir,
           least(j.attempts + case
                                  when %(stopped)s and mod(j.attempts + 1::bigint, %(most_runs)s::bigint) = 0 then %(most_runs)s::bigint
                                  else 1
                              end, 2147483647)::integer as runs,
           case
               when j.abort_requested and %(status)s::text is distinct from 'succeeded' then 'cancelled'
               when %(status)s::text is not null then %(status)s::text
               when not %(stopped)s and mod(j.attempts + 1::bigint, %(most_runs)s::bigint) = 0 then 'failed'
               when heir.id is not null then 'aborted'
               else 'todo'
           end as status,
           case when %(status)s::text is null and not j.abort_requested then %(again_seconds)s::double precision else 0 end as pause
      from patience
     cross join pgmem_queue.procrastinate_jobs j
      left join lateral (
            select o.id
              from pgmem_queue.procrastinate_jobs o
             where o.queueing_lock = j.queueing_lock and o.status = 'todo'
             limit 1
           ) heir on true
     where j.id = %(job)s and j.status = 'doing' and j.attempts = %(runs)s
       for no key update of j
),
handed as (
    update pgmem_queue.procrastinate_jobs as o
       set attempts = case
                          when run.status = 'aborted'
                              then o.attempts + greatest(mod(run.runs, %(most_runs)s::bigint) - mod(o.attempts, %(most_runs)s::bigint), 0)
                          else o.attempts
                      end,
           scheduled_at = case when run.pause > 0 then now() + make_interval(secs => run.pause) else o.scheduled_at end
      from run
     where o.id = run.heir and o.status = 'todo'
),
told as (
    insert into pgmem_queue.procrastinate_events (job_id, type)
    select run.id, 'cancelled'
      from run
     where run.status = 'cancelled'
)
update pgmem_queue.procrastinate_jobs as j
   set status = run.status::pgmem_queue.procrastinate_job_status,
       attempts = run.runs,
       args = case
                  when jsonb_typeof(run.args) = 'object'
                      then run.args || jsonb_strip_nulls(jsonb_build_object('error', %(error)s::text,
                                                                            'heir', case when run.status = 'aborted' then run.heir end))
                  else run.args
              end,
       scheduled_at = case when run.status = 'todo' then now() + make_interval(secs => run.pause) else run.scheduled_at end,
       abort_requested = false
  from run
 where j.id = run.id
returning j.status::text as status,
          case when run.pause = 0 and (run.status = 'todo' or run.heir is not null)
               then pg_notify('procrastinate_queue_v1#' || run.queue_name,
                              json_build_object('type', 'job_inserted', 'job_id', coalesce(run.heir, run.id))::text)::text
          end as told
