-- Queues a tree's compaction, unless one waits already: gives that one then. No row: somebody queued it this moment.
with added as (
    insert into pgmem_queue.procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args)
    values (%(queue)s, %(task)s, %(tree)s, %(tree)s, %(args)s::jsonb)
        on conflict (queueing_lock) where status = 'todo' do nothing
    returning id
)
select id
  from added
 union all
select j.id
  from pgmem_queue.procrastinate_jobs j
 where j.queueing_lock = %(tree)s
   and j.status = 'todo'
   and not exists (select from added)
