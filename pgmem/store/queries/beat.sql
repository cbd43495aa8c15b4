-- Says that a worker lives. No row: it is not known any more, since it was silent for long.
update pgmem_queue.procrastinate_workers as w
   set last_heartbeat = now()
 where w.id = %(worker)s
returning w.id
