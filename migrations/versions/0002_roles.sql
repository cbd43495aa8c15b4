-- Who may do what with stages and the new views.

grant select, insert on pgmem.stages to pgmem_app;
grant select on pgmem.stage_log, pgmem.verdict_log to pgmem_app, pgmem_reader;
