/* Evaluates a script. */
#include <stdio.h>
#include <string.h>
#include "quickjs.h"

int main(int argc, char **argv) {
  static char script[1 << 16];
  FILE *file = argc > 1 ? fopen(argv[1], "r") : NULL;
  if (!file) return 1;
  script[fread(script, 1, sizeof script - 1, file)] = 0;
  fclose(file);
  JSRuntime *runtime = JS_NewRuntime();
  JSContext *context = JS_NewContext(runtime);
  JSValue value = JS_Eval(context, script, strlen(script), argv[1], JS_EVAL_TYPE_GLOBAL);
  int failed = JS_IsException(value);
  JS_FreeValue(context, value);
  JS_FreeContext(context);
  JS_FreeRuntime(runtime);
  return failed;
}
