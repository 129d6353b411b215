// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package command_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// found is what a run of these tests finds out.
type found struct{ code int }

func (f found) Error() string { return "found" }
func (f found) ExitCode() int { return f.code }

func (f found) WriteText(w io.Writer) error { return say(w, "in text") }
func (f found) WriteJSON(w io.Writer) error { return say(w, `"in JSON"`) }

func say(w io.Writer, text string) error {
	_, err := fmt.Fprintln(w, text)
	return err
}

// A run that has found something out prints it, and nothing else.
func TestOutcome(t *testing.T) {
	run := func(cause error, stop error, args ...string) (stdout, stderr string, err error) {
		started := make(chan struct{}) // what has not started is not stopped
		finder := cell.Module("finder", "Finds something out",
			cell.Job("find", func(stop lifecycle.Shutdown) job.Job {
				return job.OneShot(func(context.Context) error { <-started; stop(cause); return nil })
			}),
			cell.Hook("end", func() lifecycle.Hook {
				return lifecycle.Funcs{
					OnStart: func(context.Context) error { close(started); return nil },
					OnStop:  func(context.Context) error { return stop },
				}
			}))
		root := command.New("operator", finder)
		var out, log bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&log)
		root.SetArgs(args)
		err = root.ExecuteContext(t.Context())
		return out.String(), log.String(), err
	}
	if out, _, err := run(found{0}, nil); out != "in text\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	if out, log, err := run(found{2}, nil, "-o", "json"); out != "\"in JSON\"\n" || log != "" || err == nil || err.Error() != "exit code 2" {
		t.Errorf("%q, %q, %v", out, log, err)
	}
	if out, log, err := run(found{3}, errors.New("it did not stop"), "--output=text"); out != "in text\n" || !strings.Contains(log, "it did not stop") || err == nil {
		t.Errorf("%q, %q, %v", out, log, err)
	}
	if out, _, err := run(errors.New("a failure"), nil); out != "" || err == nil || err.Error() != "a failure" {
		t.Errorf("%q, %v", out, err)
	}
	if _, _, err := run(found{0}, nil, "-o", "xml"); err == nil || !strings.Contains(err.Error(), "use text or json") {
		t.Errorf("%v", err)
	}
}
