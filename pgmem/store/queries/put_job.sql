-- Queues a tree's compaction, unless one waits already, and gives the job that waits; no number: somebody queued it this moment. The
-- unique key alone says whether one waits: what a caller's transaction of repeatable read sees may be old. A key is that of the session,
-- which must be there: a caller's connection may lead elsewhere.
with patience as materialized (
    select set_config('lock_timeout', coalesce(%(patience)s::text, current_setting('lock_timeout')), true)
),
here as materialized (
    select %(key)s::text is null
               or exists (
                      select
                        from pgmem.sessions s
                       where s.session_id = %(session_id)s and s.key = %(key)s and s.created_at = %(made_at)s
                  ) as is_here,
           (select j.id
              from pgmem_queue.procrastinate_jobs j
             where j.queueing_lock = %(tree)s and j.status = 'todo') as waits
      from patience
),
added as (
    insert into pgmem_queue.procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args)
    select %(queue)s, %(task)s, %(tree)s, %(tree)s, %(args)s::jsonb
      from here
     where here.is_here
        on conflict (queueing_lock) where status = 'todo' do nothing
    returning id
)
select here.is_here, case when here.is_here and %(key)s::text is not null then pg_current_xact_id()::text::bigint end as xact,
       case when here.is_here then coalesce((select added.id from added), here.waits) end as id
  from here
