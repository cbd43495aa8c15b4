-- Forgets jobs that are done and ended long ago, and those that failed or were cancelled once a later job of the tree has followed too:
-- until then the row says that nobody is to queue the tree again.
with gone as (
    delete from pgmem_queue.procrastinate_jobs j
     where j.queue_name = %(queue)s
       and j.status not in ('todo', 'doing')
       and (   j.status in ('succeeded', 'aborted')
            or exists (
                   select
                     from pgmem_queue.procrastinate_jobs o
                    where o.queueing_lock = j.queueing_lock and o.id > j.id
               ))
       and not exists (
               select
                 from pgmem_queue.procrastinate_events e
                where e.job_id = j.id
                  and e.at > now() - case
                                         -- who awaits it has heard of it
                                         when j.status = 'failed' then make_interval(secs => %(seconds)s)
                                         else make_interval(hours => %(hours)s::integer)
                                     end
           )
    returning 1
)
select count(*) as jobs
  from gone
