-- How far a job is.
select j.id, j.status::text as status, j.attempts
  from pgmem_queue.procrastinate_jobs j
 where j.id = %(job)s
