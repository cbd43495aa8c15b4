-- Who erased what? The branch says who and which turns, and the turns are there to be read.
select b.cause, b.actor, t.namespace, t.no as turn, t.status, left(t.content, 48) as said
  from pgmem.branch_log b
  join pgmem.turn_log t
    on t.session_id = b.session_id and t.namespace = b.namespace
   and t.no between b.left_from and b.left_to
 where b.tenant = 'demo' and b.session = '$SESSION'
   and b.cause = 'erase' and t.content is not null
 order by b.no, t.no
