-- The job of a tree that waits, if there is one.
select j.id
  from pgmem_queue.procrastinate_jobs j
 where j.queueing_lock = %(tree)s
   and j.status = 'todo'
