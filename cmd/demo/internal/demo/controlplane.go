// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/skep-operator/skep/resources/clustertest"
)

// Build makes sure that the control plane is built, which takes minutes the
// first time. If the context ends before, the build goes on into Go's cache.
func Build(ctx context.Context) error {
	_, err := program(ctx)
	return err
}

func program(ctx context.Context) (string, error) {
	type answer struct {
		path string
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		path, err := clustertest.Program()
		done <- answer{path, err}
	}()
	select {
	case a := <-done:
		return a.path, a.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// startControlPlane returns when the control plane is ready.
func (d Demo) startControlPlane(ctx context.Context, dir string) (*child, error) {
	d.say("Starting a control plane: etcd, kube-apiserver and kube-controller-manager.")
	path, err := program(ctx)
	if err != nil {
		return nil, err
	}
	var said strings.Builder // the child's alone until it has ended
	ready := make(chan string, 1)
	plane, err := start(func(line string) {
		if strings.HasPrefix(line, "devcluster is ready") {
			took, _, _ := strings.Cut(line, ":")
			ready <- took
			return
		}
		said.WriteString(line)
	}, nil, path, "up", "--dir", dir, "--die-with-parent")
	if err != nil {
		return nil, err
	}
	select {
	case line := <-ready:
		d.say("The %s.", line)
		return plane, nil
	case <-plane.ended:
		return nil, fmt.Errorf("the control plane ended before it was ready: %v\n%s", plane.err, said.String())
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), plane.stop())
	}
}
