-- Who said that chg-90257 may be applied? Every turn that names it, and the node that stands for it.
select no, role, status, node, left(translate(content, E'\n', ' '), 56) as said
  from pgmem.turn_log
 where tenant = 'demo' and session = '$SESSION'
   and content like '%chg-90257%'
 order by no
