-- A page of a tree's facts in order, as the hash chain sees them: its digest's fields as texts, its kind first.
with facts as (
    (select u.no, u.created_at, u.chain, u.branch, null::bigint as base, null::bigint as left_from, null::bigint as left_to,
           array['turn', u.role, u.content, u.extra::text, u.raw, u.pinned::text, u.tokens::text, u.idempotency_key]
               as fields
      from pgmem.turns u
     where u.session_id = %(session_id)s and u.namespace = %(namespace)s
       and u.no > %(after)s
     order by u.no
     limit %(most)s)
     union all
    (select n.no, n.created_at, n.chain, n.branch, null, null, null,
           array['node', n.parent::text, n.first_no::text, n.last_no::text, n.kind, n.label, n.strategy, n.summary,
                 n.cumulative::text, n.tokens::text, n.source_tokens::text, n.model, n.prompt_version, n.usage::text]
      from pgmem.nodes n
     where n.session_id = %(session_id)s and n.namespace = %(namespace)s
       and n.no > %(after)s
     order by n.no
     limit %(most)s)
     union all
    (select v.no, v.created_at, v.chain, null, null, null, null,
           array['verdict', v.node::text, v.outcome, v.reason, v.missing::text, v.judge, v.model, v.prompt_version,
                 v.usage::text]
      from pgmem.verdicts v
     where v.session_id = %(session_id)s and v.namespace = %(namespace)s
       and v.no > %(after)s
     order by v.no
     limit %(most)s)
     union all
    (select b.no, b.created_at, b.chain, b.no, coalesce(b.base, 0), b.left_from, coalesce(b.left_to, 0),
           array['branch', b.cause, b.note, b.actor]
      from pgmem.branches b
     where b.session_id = %(session_id)s and b.namespace = %(namespace)s
       and b.no > %(after)s
     order by b.no
     limit %(most)s)
     union all
    (select p.no, p.created_at, p.chain, null, null, null, null, array['policy', p.policy::text]
      from pgmem.policies p
     where p.session_id = %(session_id)s and p.namespace = %(namespace)s
       and p.no > %(after)s
     order by p.no
     limit %(most)s)
)
select no, fields, created_at, branch, base, left_from, left_to, chain
  from facts
 order by no
 limit %(most)s
