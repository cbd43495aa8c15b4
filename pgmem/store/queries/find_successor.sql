-- The newest job of a job's tree that was put after it, if there is one: what it gave way to.
select n.id
  from pgmem_queue.procrastinate_jobs j
  join pgmem_queue.procrastinate_jobs n on n.queueing_lock = j.queueing_lock and n.id > j.id
 where j.id = %(job)s
 order by n.id desc
 limit 1
