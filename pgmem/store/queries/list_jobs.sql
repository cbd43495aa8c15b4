-- The newest jobs, of one status or of all, with the session that each is for, when it was queued and last moved, when it is run next,
-- and when its worker last gave a sign of life.
select j.id, j.status::text as status, j.attempts, s.tenant, s.key as session, j.args ->> 'namespace' as namespace,
       e.queued_at, e.moved_at,
       case when j.status = 'todo' and j.scheduled_at between '0001-01-02' and '9999-12-30' then j.scheduled_at end as next_run_at,
       case when j.status = 'doing' then w.last_heartbeat end as heard_at,
       case when j.status = 'todo' or j.status = 'failed' then j.args ->> 'error' end as error
  from pgmem_queue.procrastinate_jobs j
  left join pgmem.sessions s
    on s.session_id = case when j.args ->> 'session_id' ~ '^[0-9]{1,18}$' then (j.args ->> 'session_id')::bigint end
  left join pgmem_queue.procrastinate_workers w on w.id = j.worker_id
 cross join lateral (
        select min(e.at) as queued_at, max(e.at) as moved_at
          from pgmem_queue.procrastinate_events e
         where e.job_id = j.id and e.type <> 'scheduled'
       ) e
 where j.queue_name = %(queue)s
   and (%(status)s::text is null or j.status::text = %(status)s)
 order by j.id desc
 limit %(most)s
