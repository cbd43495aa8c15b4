-- The active path, root first.
with recursive path as (
    select n.no, n.parent
      from pgmem.trees t
      join pgmem.nodes n on n.session_id = t.session_id and n.namespace = t.namespace and n.no = t.head
     where t.session_id = %(session_id)s
       and t.namespace = %(namespace)s
     union all
    select n.no, n.parent
      from path
      join pgmem.nodes n on n.no = path.parent
     where n.session_id = %(session_id)s
       and n.namespace = %(namespace)s
)
select n.no, n.branch, n.parent, n.first_no, n.last_no, n.kind, n.label, n.strategy, n.summary, n.cumulative, n.tokens,
       n.source_tokens, n.model, n.prompt_version, n.created_at,
       case v.outcome when 'pass' then 'compressed' when 'fail' then 'failed' else 'pending' end as status
  from path
  join pgmem.nodes n on n.no = path.no
  left join lateral (
        select v.outcome
          from pgmem.verdicts v
         where v.session_id = n.session_id and v.namespace = n.namespace and v.node = n.no
         order by v.no desc
         limit 1
       ) v on true
 where n.session_id = %(session_id)s
   and n.namespace = %(namespace)s
 order by n.no
