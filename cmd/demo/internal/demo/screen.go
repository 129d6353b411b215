// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/skep-operator/skep/runtime/graph"
)

// serialWriter lets the demo and its children write, one at a time.
type serialWriter struct {
	mu  sync.Mutex
	out io.Writer
}

func (w *serialWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(p)
}

// say writes a line of the demo's own.
func (d Demo) say(format string, args ...any) {
	fmt.Fprintf(d.Out, "==> "+format+"\n", args...)
}

// log shows a line of the operator's log, unless it lists an option: there are
// some 200.
func (d Demo) log(line string) {
	if !strings.Contains(line, `msg="  --`) {
		fmt.Fprintf(d.Out, "  | %s", line)
	}
}

// showDuties says what an operator with these arguments does when it leads.
func (d Demo) showDuties(ctx context.Context, args []string) error {
	args = slices.Concat([]string{"cells", "--json"}, args, d.Args)
	output, err := exec.CommandContext(ctx, d.Operator, args...).Output()
	if err != nil {
		return fmt.Errorf("ask %s for its cells: %w", d.Operator, err)
	}
	var modules []graph.Module
	if err := json.Unmarshal(output, &modules); err != nil {
		return fmt.Errorf("ask %s for its cells: %w", d.Operator, err)
	}
	d.say("What it does when it is elected; ARGS='--flag=…' change that:")
	table := tabwriter.NewWriter(d.Out, 0, 0, 2, ' ', 0)
	for _, m := range modules {
		if m.Enabled && m.Term != "" && m.ID != "" {
			fmt.Fprintf(table, "  %s\t%s\n", m.ID, m.Title)
		}
	}
	return table.Flush()
}

// waitForLeader waits until the operator knows who leads, itself or another.
func (d Demo) waitForLeader(ctx context.Context, _ *rest.Config, socket string) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var status struct {
			Election struct {
				Holder string `json:"holder"`
			} `json:"election"`
		}
		output, err := d.status(ctx, socket, "--json").Output()
		if last = err; err != nil {
			return false, nil // it does not listen yet
		}
		err = json.Unmarshal(output, &status)
		return status.Election.Holder != "", err
	})
	if err != nil {
		return fmt.Errorf("wait for a leader: %w", errors.Join(last, err, context.Cause(ctx)))
	}
	return nil
}

func (d Demo) status(ctx context.Context, socket string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, d.Operator, append([]string{"status", "--operator-sock-path=" + socket}, args...)...)
}

// showStatus shows what the operator says about itself.
func (d Demo) showStatus(ctx context.Context, socket string) {
	output, err := d.status(ctx, socket).CombinedOutput()
	d.say("What the operator says (%s status):", d.Operator)
	for line := range bytes.Lines(output) {
		fmt.Fprintf(d.Out, "  %s", line)
	}
	if err != nil {
		d.say("It did not answer: %v", err)
	}
}

// showMore says where to look.
func (d Demo) showMore(socket, kubeconfig string) {
	d.say(`It runs until Ctrl-C. Look at it from another terminal:

  export CILIUM_OPERATOR_SOCK_PATH=%[2]s
  %[1]s status            who leads, how duties fare
  %[1]s status health     the health tree
  %[1]s writes            what it wrote, and what set that off; -f goes on
  %[1]s explain CiliumNode/worker-1    why it wrote this object, or did not
  %[1]s status graph | bin/graphdraw -format html >live.html    the running graph, for a browser

  These look at what is built, and need neither a cluster nor a running operator:
  %[1]s cells             every duty, and whether it is on
  %[1]s why ipam          what a flag switches; takes a cell or a type, too
  %[1]s graph             what needs what; -o order says what starts when
  %[1]s config            every option, and where its value comes from
  %[1]s rbac              the permissions that it needs

  The cluster, for any Kubernetes client:
  export KUBECONFIG=%[3]s
`, d.Operator, socket, kubeconfig)
}

func commandLine(program string, args []string) string {
	return program + " \\\n      " + strings.Join(args, " \\\n      ")
}
