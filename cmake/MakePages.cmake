# cmake -DPROGRAM=harmonics -DGZIP=gzip -DTO=folder -P: writes compressed manual pages of the program and of each verb,
# and completions for each shell.
file(REMOVE_RECURSE ${TO})

# say(file arguments...): writes the program's output to the file.
function(say file)
  get_filename_component(folder ${TO}/${file} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  execute_process(COMMAND ${PROGRAM} ${ARGN} OUTPUT_FILE ${TO}/${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

execute_process(COMMAND ${PROGRAM} man --list OUTPUT_VARIABLE verbs COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]+" verbs "${verbs}")
say(man/man1/harmonics.1 man)
foreach(verb IN LISTS verbs)
  say(man/man1/harmonics-${verb}.1 man ${verb})
endforeach()
say(man/man5/hmx.5 man hmx)
file(GLOB pages ${TO}/man/man1/*.1 ${TO}/man/man5/*.5)
execute_process(COMMAND ${GZIP} -9 -n ${pages} COMMAND_ERROR_IS_FATAL ANY)

say(bash-completion/completions/harmonics completion bash)
say(zsh/site-functions/_harmonics completion zsh)
say(fish/vendor_completions.d/harmonics.fish completion fish)
file(TOUCH ${TO}/made)
