-- Forgets jobs that are over: a day after they succeeded or gave way; a day after they were cancelled, and a minute after they failed, but
-- those only once a later job of the tree is there: until then the row says that nobody is to queue the tree again.
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
