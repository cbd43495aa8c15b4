-- The newest jobs, of one status or of all, with the session that each is for and when it was queued and last moved.
select j.id, j.status::text as status, j.attempts, j.scheduled_at, s.tenant, s.key as session, j.args ->> 'namespace' as namespace,
       e.queued_at, e.moved_at
  from pgmem_queue.procrastinate_jobs j
  left join pgmem.sessions s on s.session_id = (j.args ->> 'session_id')::bigint
 cross join lateral (
        select min(e.at) as queued_at, max(e.at) as moved_at
          from pgmem_queue.procrastinate_events e
         where e.job_id = j.id
       ) e
 where j.queue_name = %(queue)s
   and (%(status)s::text is null or j.status::text = %(status)s)
 order by j.id desc
 limit %(most)s
