-- How far a job is, and how the transaction that it was put in ended, if one is named. No status: there is no such job to be seen.
select (select j.status::text
          from pgmem_queue.procrastinate_jobs j
         where j.id = %(job)s) as status,
       pg_xact_status(%(xact)s::bigint::text::xid8) as xact
