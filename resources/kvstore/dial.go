// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"net"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/internal/fenced"
	"github.com/skep-operator/skep/resources/k8s"
)

// Fence is the right to write during one term. *k8s.Fence is one.
type Fence interface {
	// Check returns an error once the fence is shut.
	Check() error
	// Context ends when the fence shuts, with the same error as cause.
	Context() context.Context
	// OnClose calls c when the fence shuts, or now if it has.
	OnClose(c func())
}

// dialTimeout bounds one attempt. gRPC makes the next, after a pause.
const dialTimeout = 10 * time.Second

// dialer dials endpoints of etcd, and remembers why that fails.
type dialer struct {
	services serviceAddresses
	failures *failures
	connect  fenced.DialFunc
}

// newDialer dials connections of one term; without a fence nobody writes.
func newDialer(f Fence, s serviceAddresses, noted *failures) *dialer {
	d := &dialer{services: s, failures: noted}
	d.connect = d.plain
	if f != nil {
		d.connect = fenced.NewDialer(f, d.plain, nil).DialContext
	}
	return d
}

func (d *dialer) dial(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return d.connect(ctx, "tcp", address)
}

// plain dials an endpoint as etcd spells it.
func (d *dialer) plain(ctx context.Context, network, address string) (net.Conn, error) {
	target := address
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, target = "unix", strings.TrimPrefix(path, "//")
	} else {
		target = d.services.resolve(ctx, address)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, target)
	d.failures.note("dial "+address, err)
	return conn, err
}

// serviceAddresses finds the addresses of Services, so that etcd is reached
// without the cluster's DNS, which may need the network that needs etcd.
type serviceAddresses struct{ client getter } // nil: DNS only

// getter is the part of k8s.Client that is needed here.
type getter interface {
	Get(ctx context.Context, ref k8s.Ref) (*unstructured.Unstructured, error)
}

// resolve replaces the host of an address, if it is the name of a Service with
// an address. All else is left to DNS.
func (s serviceAddresses) resolve(ctx context.Context, address string) string {
	host, port, err := net.SplitHostPort(address)
	name, namespace, ok := serviceOf(host)
	if err != nil || !ok || s.client == nil {
		return address
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout/2)
	defer cancel()
	ref := k8s.Ref{Resource: corev1.SchemeGroupVersion.WithResource("services"), Namespace: namespace, Name: name}
	service, err := s.client.Get(ctx, ref)
	if err != nil {
		return address
	}
	ip, _, _ := unstructured.NestedString(service.Object, "spec", "clusterIP")
	if net.ParseIP(ip) == nil { // none yet, or headless
		return address
	}
	return net.JoinHostPort(ip, port)
}

// serviceOf takes the name of a Service apart: name.namespace.svc[.domain].
func serviceOf(host string) (name, namespace string, ok bool) {
	parts := strings.SplitN(host, ".", 4)
	if len(parts) < 3 || parts[2] != "svc" || parts[0] == "" || parts[1] == "" {
		return "", "", false
	}
	return parts[0], parts[1], true
}

// failures remembers why endpoints cannot be connected to: gRPC keeps that to
// itself and lets requests run into their limit. It is safe for concurrent use.
type failures struct {
	mu   sync.Mutex
	last map[string]error
}

func newFailures() *failures { return &failures{last: map[string]error{}} }

// note sets or, with nil, clears what is wrong with a step towards an address.
func (f *failures) note(step string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		delete(f.last, step)
		return
	}
	f.last[step] = err
}

// any is what is wrong with some endpoint, or nil.
func (f *failures) any() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, err := range f.last {
		return err
	}
	return nil
}
