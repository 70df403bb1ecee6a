create table model_price (
  model text collate "C" not null,
  valid_from date not null,
  input_micros bigint not null,
  output_micros bigint not null,
  cache_read_micros bigint not null,
  cache_write_micros bigint not null,
  primary key (model, valid_from)
);
comment on table model_price is 'Prices of models, as the deployment''s owner states them (callgate database prices). Each holds until the model''s next one.';
comment on column model_price.model is 'The model, as usage names it.';
comment on column model_price.valid_from is 'The first UTC day of the price.';
comment on column model_price.input_micros is 'Per million tokens read, in millionths of a US dollar.';
comment on column model_price.output_micros is 'Per million tokens written, in millionths of a US dollar.';
comment on column model_price.cache_read_micros is 'Per million tokens read from a prompt cache, in millionths of a US dollar.';
comment on column model_price.cache_write_micros is 'Per million tokens written to a prompt cache, in millionths of a US dollar.';
