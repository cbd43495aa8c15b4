-- Who may do what. Roles belong to the whole cluster: another database may have made them already.

do $$
declare
    role_name text;
begin
    foreach role_name in array array['pgmem_app', 'pgmem_reader'] loop
        begin
            if not exists (select from pg_roles where rolname = role_name) then
                execute 'create role ' || role_name || ' nologin';
                execute 'alter role ' || role_name || ' set plan_cache_mode = force_generic_plan';
                execute 'alter role ' || role_name || ' set default_transaction_isolation = "read committed"';
            end if;
        exception when duplicate_object or unique_violation then
            null;
        end;
    end loop;
end
$$;

grant usage on schema pgmem to pgmem_app, pgmem_reader;
grant select, insert on pgmem.sessions, pgmem.trees, pgmem.turns, pgmem.nodes, pgmem.verdicts, pgmem.branches,
    pgmem.policies to pgmem_app;
grant update (branch, open_branch, head, boundary, last_no, version, chain) on pgmem.trees to pgmem_app;
grant select on pgmem.turn_log, pgmem.node_log, pgmem.branch_log, pgmem.log, pgmem.schema_version
    to pgmem_app, pgmem_reader;
grant execute on function pgmem.left_behind(bigint, text) to pgmem_app, pgmem_reader;
