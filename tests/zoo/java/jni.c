/* Zoo.blocks for Java. */
#include <jni.h>
#include "../blocks/zoo.h"

JNIEXPORT jlong JNICALL Java_Zoo_blocks(JNIEnv *environment, jclass class, jlong count) {
    (void)environment, (void)class;
    return zoo_blocks(count);
}
