-- All that a tree shows, now or as of a fact: part 0 the tree, 1 nodes, 2 kept turns, 3 active turns, 4 hints.
-- A part has no more rows than it shows. No row at all: there is no such tree, or it has no such fact yet.
with recursive asked as (
    -- a failing verdict means the reopen that came with it
    select %(as_of)s::bigint + (
               select count(*)
                 from pgmem.verdicts v
                 join pgmem.branches b
                   on b.session_id = v.session_id and b.namespace = v.namespace and b.no = v.no + 1
                where v.session_id = %(session_id)s and v.namespace = %(namespace)s and v.no = %(as_of)s::bigint
                  and v.outcome = 'fail' and b.cause = 'reopen'
           ) as no
     where %(as_of)s::bigint is not null
),
tree as materialized (
    select t.branch, t.open_branch, t.head, t.boundary, t.last_no, t.version
      from pgmem.trees t
     where t.session_id = %(session_id)s
       and t.namespace = %(namespace)s
       and %(as_of)s::bigint is null
     union all
    select coalesce(b.no, 0), 0, h.no,
           case when b.cause = 'erase' and n.no is null then b.no else coalesce(h.last_no, 0) end, asked.no, 0
      from asked
      join pgmem.trees t
        on t.session_id = %(session_id)s and t.namespace = %(namespace)s and asked.no between 0 and t.last_no
      left join lateral (
            select b.no, b.base, b.cause
              from pgmem.branches b
             where b.session_id = %(session_id)s and b.namespace = %(namespace)s and b.no <= asked.no
             order by b.no desc
             limit 1
           ) b on true
      left join lateral (
            select n.no
              from pgmem.nodes n
             where n.session_id = %(session_id)s and n.namespace = %(namespace)s
               and n.no <= asked.no and n.no > coalesce(b.no, 0)
             order by n.no desc
             limit 1
           ) n on true
      left join lateral (
            select h.no, h.last_no
              from pgmem.nodes h
             where h.session_id = %(session_id)s and h.namespace = %(namespace)s and h.no = coalesce(n.no, b.base)
             limit 1
           ) h on true
),
-- Joins on a position are lateral with a limit: a planner that expects few rows a tree would read the whole tree for one.
path as (
    select n.no, n.parent, n.cumulative, 1 as depth
      from tree
     cross join lateral (
            select n.no, n.parent, n.cumulative
              from pgmem.nodes n
             where n.session_id = %(session_id)s and n.namespace = %(namespace)s and n.no = tree.head
             limit 1
           ) n
     union all
    select n.no, n.parent, n.cumulative, path.depth + 1
      from path
     cross join lateral (
            select n.no, n.parent, n.cumulative
              from pgmem.nodes n
             where n.session_id = %(session_id)s and n.namespace = %(namespace)s and n.no = path.parent
             limit 1
           ) n
     where not path.cumulative
       and path.depth < %(most_nodes)s
),
oldest_pinned as materialized (
    select (select u.no
              from pgmem.turns u
             where u.session_id = %(session_id)s and u.namespace = %(namespace)s and u.pinned
             order by u.no
             limit 1) as no
),
-- The stretches between what was left behind, newest first, as far down as something of them is shown.
-- Ranges are nested or apart, so the newest one below a stretch is its whole gap. The first row only starts the walk.
live as (
    select null::bigint as low, null::bigint as high, tree.last_no as next_high, false as has_user
      from tree
     union all
    select coalesce(gap.left_to, 0) + 1, live.next_high, gap.left_from - 1,
           live.has_user or exists (
               select from pgmem.turns u
                where u.session_id = %(session_id)s and u.namespace = %(namespace)s and u.role = 'user'
                  and u.no > coalesce(gap.left_to, 0) and u.no <= live.next_high
           )
      from live
     cross join tree
     cross join oldest_pinned
      left join lateral (
            select b.left_from, b.left_to
              from pgmem.branches b
             where b.session_id = %(session_id)s and b.namespace = %(namespace)s
               and b.left_to <= least(live.next_high, tree.last_no - 1)
             order by b.left_to desc
             limit 1
           ) gap on true
     where live.next_high > 0
       and (live.next_high > tree.boundary
            or live.next_high >= oldest_pinned.no
            or not live.has_user and exists (
                   select from pgmem.turns u
                    where u.session_id = %(session_id)s and u.namespace = %(namespace)s and u.role = 'user'
                      and u.no <= live.next_high
               ))
),
kept as (
    select u.no
      from live
     cross join lateral (
            select u.no
              from pgmem.turns u
             where u.session_id = %(session_id)s and u.namespace = %(namespace)s and u.pinned
               and u.no >= live.low and u.no <= live.high
             order by u.no
             limit %(most_turns)s
           ) u
     union
    (
    select u.no
      from live
     cross join lateral (
            select u.no
              from pgmem.turns u
             where u.session_id = %(session_id)s and u.namespace = %(namespace)s and u.role = 'user'
               and u.no >= live.low and u.no <= live.high
             order by u.no desc
             limit 1
           ) u
     order by u.no desc
     limit 1
    )
),
-- Notes of attempts that were left behind, newest first, at most so many: not those before an Erase, nor those that a later
-- Revise went back past, nor those more Revises ago than the path is walked. The first row only starts the walk.
hints as (
    select tree.last_no + 1 as no, null::bigint as left_from, null::bigint as left_to, null::text as note,
           9223372036854775807 as least_from,
           0 as shown, 0 as depth,
           coalesce((select b.no
                       from pgmem.branches b
                      where b.session_id = %(session_id)s and b.namespace = %(namespace)s and b.cause = 'erase'
                        and b.no <= tree.last_no
                      order by b.no desc
                      limit 1), 0) as erased_at
      from tree
     union all
    select attempt.no, attempt.left_from, attempt.left_to, attempt.note,
           case when attempt.left_to is null then hints.least_from else attempt.left_from end,
           hints.shown + (attempt.note is not null)::integer, hints.depth + 1, hints.erased_at
      from hints
     cross join lateral (
            select b.no, b.left_from, b.left_to, b.note
              from pgmem.branches b
             where b.session_id = %(session_id)s and b.namespace = %(namespace)s and b.cause = 'revise'
               and b.no < hints.no and b.no > hints.erased_at and b.left_from <= hints.least_from
             order by b.no desc
             limit 1
           ) attempt
     where hints.shown < %(most_hints)s
       and hints.depth < %(most_nodes)s
)
select 0 as part, tree.last_no as no, tree.branch, tree.open_branch as link, tree.head as low, tree.boundary as high,
       tree.version as amount, null::integer as tokens, null::boolean as flag, null::text as word, null::text as title,
       null::text as body, null::text as extra, null::text as raw, null::text as mark, null::timestamptz as created_at
  from tree
 union all
select 1, n.no, n.branch, n.parent, n.first_no, n.last_no, n.source_tokens, n.tokens, n.cumulative, n.kind, n.label,
       n.summary, n.model, n.prompt_version, n.strategy, n.created_at
  from path
 cross join lateral (
        select n.no, n.branch, n.parent, n.first_no, n.last_no, n.source_tokens, n.tokens, n.cumulative, n.kind, n.label,
               n.summary, n.model, n.prompt_version, n.strategy, n.created_at
          from pgmem.nodes n
         where n.session_id = %(session_id)s and n.namespace = %(namespace)s and n.no = path.no
         limit 1
       ) n
 union all
select 2, u.no, u.branch, null, null, null, null, u.tokens, u.pinned, u.role, null, u.content, u.extra::text, u.raw,
       u.idempotency_key, u.created_at
  from tree
 cross join kept
 cross join lateral (
        select u.no, u.branch, u.tokens, u.pinned, u.role, u.content, u.extra, u.raw, u.idempotency_key, u.created_at
          from pgmem.turns u
         where u.session_id = %(session_id)s and u.namespace = %(namespace)s and u.no = kept.no
         limit 1
       ) u
 where kept.no <= tree.boundary
 union all
select 3, u.no, u.branch, null, null, null, null, u.tokens, u.pinned, u.role, null, u.content, u.extra::text, u.raw,
       u.idempotency_key, u.created_at
  from tree
 cross join live
 cross join lateral (
        select u.no, u.branch, u.tokens, u.pinned, u.role, u.content, u.extra, u.raw, u.idempotency_key, u.created_at
          from pgmem.turns u
         where u.session_id = %(session_id)s and u.namespace = %(namespace)s
           and u.no > greatest(tree.boundary, live.low - 1) and u.no <= live.high
         order by u.no
         limit %(most_turns)s
       ) u
 where live.high > tree.boundary
 union all
select 4, hints.no, hints.no, hints.left_from, hints.left_to, null, null, null, null, null, null, hints.note, null, null, null, null
  from hints
 where hints.note is not null
 order by part, no
