// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package logging

import (
	"fmt"
	"reflect"

	"github.com/sirupsen/logrus"

	"github.com/skep-operator/skep/runtime/printable"
)

// maxText is how much of a text a line has, in bytes: objects, clouds and remote clusters have longer ones.
const maxText = 1000

// Stack is the field of a stack, which is the program's own and stays whole.
const Stack = "stack"

// bound cuts texts that are too long.
type bound struct{}

// Levels implements logrus.Hook.
func (bound) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook.
func (bound) Fire(e *logrus.Entry) error {
	e.Message = printable.Cut(e.Message, maxText)
	for key, value := range e.Data {
		if key == Stack {
			continue
		}
		if text, is := textOf(value); is && len(text) > maxText {
			e.Data[key] = printable.Cut(text, maxText)
		}
	}
	return nil
}

// textOf is a value as a line has it. is is false for what is never long.
func textOf(value any) (text string, is bool) {
	switch v := value.(type) {
	case nil:
		return "", false
	case string:
		return v, true
	case error, fmt.Stringer:
		return fmt.Sprint(v), true
	}
	switch reflect.TypeOf(value).Kind() {
	case reflect.String, reflect.Slice, reflect.Array, reflect.Map, reflect.Struct, reflect.Pointer:
		return fmt.Sprint(value), true
	}
	return "", false
}
