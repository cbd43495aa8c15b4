-- What was last said of a node, with the branch that it began: the reopen is the fact after it.
select v.no, v.node, v.outcome, v.reason, v.missing::text as missing, v.judge, v.model, v.prompt_version, v.created_at,
       b.no as reopened
  from pgmem.verdicts v
  left join pgmem.branches b
    on b.session_id = v.session_id and b.namespace = v.namespace and b.no = v.no + 1 and b.cause = 'reopen'
 where v.session_id = %(session_id)s
   and v.namespace = %(namespace)s
   and v.node = %(node)s
 order by v.no desc
 limit 1
