-- A worker that gave a sign of life lately, if there is one.
select w.id
  from pgmem_queue.procrastinate_workers w
 where w.last_heartbeat > now() - make_interval(secs => %(seconds)s)
 limit 1
