// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/clustertest/control"
)

// plane is a running control plane.
type plane struct {
	dir    string
	info   control.Info
	client dynamic.Interface
	core   kubernetes.Interface // speaks protobuf
	cmd    *exec.Cmd
	fail   context.CancelCauseFunc // of all that is done on it
}

// startPlane starts a control plane with a load in a directory of its own.
func startPlane(ctx context.Context, load ...string) (*plane, error) {
	program, err := clustertest.Program()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "skep-bench")
	if err != nil {
		return nil, err
	}
	p := &plane{dir: dir}
	p.cmd = exec.CommandContext(ctx, program, append([]string{"up", "--dir", dir}, load...)...)
	if err := awaitReady(p.cmd); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := p.connect(); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// awaitReady starts a devcluster and returns when it is ready.
func awaitReady(cmd *exec.Cmd) error {
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "ready") {
			go func() {
				for lines.Scan() { // or it blocks
				}
			}()
			return nil
		}
	}
	return fmt.Errorf("%s ended before it was ready: %v", cmd, cmd.Wait())
}

func (p *plane) connect() (err error) {
	if p.info, err = control.ReadInfo(p.dir); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", p.info.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	if p.client, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	p.core, err = kubernetes.NewForConfig(config)
	return err
}

// kubeconfig is that of a user of that name, who may do anything.
func (p *plane) kubeconfig(ctx context.Context, user string) (string, error) {
	client := control.NewClient(p.info)
	defer client.Close()
	return client.Kubeconfig(ctx, control.Kubeconfig{User: user, Groups: []string{"system:masters"}})
}

func (p *plane) stop() {
	_ = p.cmd.Process.Signal(os.Interrupt)
	_ = p.cmd.Wait()
	_ = os.RemoveAll(p.dir)
}

// request is a line of the audit log.
type request struct {
	RequestURI string
	Verb       string
	User       struct{ Username string }
	ObjectRef  struct{ APIGroup, Resource, Name, Subresource string }
	Received   time.Time `json:"requestReceivedTimestamp"`

	ResponseStatus struct{ Code int }
}

// requests are what a user asked for since a time.
func (p *plane) requests(user string, since time.Time) ([]request, error) {
	file, err := os.Open(p.info.AuditLog)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var found []request
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var r request
		if !bytes.Contains(lines.Bytes(), []byte(user)) {
			continue // there are hundreds of thousands of lines
		}
		if json.Unmarshal(lines.Bytes(), &r) == nil && r.User.Username == user && r.Received.After(since) {
			found = append(found, r)
		}
	}
	return found, lines.Err()
}

func (r request) mutates() bool {
	switch r.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return !control.IsReview(r.ObjectRef.APIGroup) && r.ObjectRef.Resource != "leases"
	}
	return false
}

// about reports whether it is about objects of a kind.
func (r request) about(kind schema.GroupVersionResource) bool {
	return r.ObjectRef.APIGroup == kind.Group && r.ObjectRef.Resource == kind.Resource
}

// mutating is how many requests change objects of a kind, or try to.
func mutating(requests []request, kind schema.GroupVersionResource) (n int) {
	for _, r := range requests {
		if r.mutates() && r.about(kind) {
			n++
		}
	}
	return n
}

// initial reports whether it asks for the whole state of something.
func (r request) initial() bool {
	return r.Verb == "list" && !strings.Contains(r.RequestURI, "metadata.name%3D") || strings.Contains(r.RequestURI, "sendInitialEvents=true")
}
