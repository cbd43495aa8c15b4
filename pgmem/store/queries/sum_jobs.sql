-- How many jobs wait, and since when, how many run and how many have failed, and how many workers gave a sign of life lately.
select count(*) filter (where j.status = 'todo') as waiting,
       min(e.at) filter (where j.status = 'todo') as waiting_since,
       count(*) filter (where j.status = 'doing') as running,
       count(*) filter (where j.status = 'failed') as failed,
       (select count(*)
          from pgmem_queue.procrastinate_workers w
         where w.last_heartbeat > now() - make_interval(secs => %(seconds)s)) as workers
  from pgmem_queue.procrastinate_jobs j
  left join lateral (
        select min(e.at) as at
          from pgmem_queue.procrastinate_events e
         where e.job_id = j.id and e.type = 'deferred'
       ) e on true
 where j.queue_name = %(queue)s
   and j.status in ('todo', 'doing', 'failed')
