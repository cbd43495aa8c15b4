-- The jobs that a worker has begun and not ended.
select j.id, j.attempts as runs
  from pgmem_queue.procrastinate_jobs j
 where j.worker_id = %(worker)s
   and j.status = 'doing'
 order by j.id
