-- The job of the same tree that a job gave way to, if it did.
select (j.args ->> 'heir')::bigint as id
  from pgmem_queue.procrastinate_jobs j
 where j.id = %(job)s
   and j.status = 'aborted'
   and j.args ->> 'heir' ~ '^[0-9]{1,18}$'
