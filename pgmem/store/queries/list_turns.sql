-- A page of a tree's turns in order, with their status.
select u.no, u.branch, u.role, u.content, u.extra::text as extra, u.raw, u.pinned, u.tokens, u.idempotency_key,
       u.created_at, u.status, u.node
  from pgmem.turn_log u
 where u.session_id = %(session_id)s
   and u.namespace = %(namespace)s
   and u.no > %(after)s
   and (%(status)s::text is null or u.status = %(status)s)
 order by u.no
 limit %(most)s
