-- Forgets jobs that ended long ago, and failures that a later job of the tree has followed.
with gone as (
    delete from pgmem_queue.procrastinate_jobs j
     where j.queue_name = %(queue)s
       and (   (j.status in ('succeeded', 'cancelled', 'aborted')
                and not exists (
                        select
                          from pgmem_queue.procrastinate_events e
                         where e.job_id = j.id and e.at > now() - make_interval(hours => %(hours)s::integer)
                    ))
            or (j.status = 'failed'
                and exists (
                        select
                          from pgmem_queue.procrastinate_jobs o
                         where o.queueing_lock = j.queueing_lock and o.id > j.id
                    )
                -- who awaits it has heard of it
                and not exists (
                        select
                          from pgmem_queue.procrastinate_events e
                         where e.job_id = j.id and e.at > now() - make_interval(secs => %(seconds)s)
                    )))
    returning 1
)
select count(*) as jobs
  from gone
