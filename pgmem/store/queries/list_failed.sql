-- What was said of the failed nodes that hang from a parent and start at a turn, oldest first.
select n.no, v.reason, v.missing::text as missing
  from pgmem.nodes n
 cross join lateral (
        select v.outcome, v.reason, v.missing
          from pgmem.verdicts v
         where v.session_id = n.session_id and v.namespace = n.namespace and v.node = n.no
         order by v.no desc
         limit 1
       ) v
 where n.session_id = %(session_id)s
   and n.namespace = %(namespace)s
   and n.last_no >= %(first_no)s
   and n.first_no = %(first_no)s
   and n.parent is not distinct from %(parent)s::bigint
   and v.outcome = 'fail'
 order by n.no
