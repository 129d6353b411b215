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

// Fence permits writes during one term. *leading.Fence implements it.
type Fence interface {
	// Check returns an error once the fence is closed.
	Check() error
	// Context ends when the fence closes, with the same error as cause.
	Context() context.Context
	// OnClose calls c when the fence closes, or at once if it is closed.
	OnClose(c func())
}

// dialTimeout bounds one attempt. gRPC retries with back-off.
const dialTimeout = 10 * time.Second

// dialer dials etcd's endpoints and records the errors.
type dialer struct {
	services serviceAddresses
	errors   *dialErrors
	connect  fenced.DialFunc
}

// newDialer returns a dialer for one term. Without a fence there are no writes to stop.
func newDialer(f Fence, s serviceAddresses, noted *dialErrors) *dialer {
	d := &dialer{services: s, errors: noted}
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

// plain dials an endpoint in etcd's notation.
func (d *dialer) plain(ctx context.Context, network, address string) (net.Conn, error) {
	target := address
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, target = "unix", strings.TrimPrefix(path, "//")
	} else {
		target = d.services.resolve(ctx, address)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, target)
	d.errors.set("dial "+address, err)
	return conn, err
}

// serviceAddresses resolves Services by the Kubernetes API: the cluster's DNS may
// depend on the network that depends on etcd.
type serviceAddresses struct{ client getter } // nil: DNS only

// getter is the part of k8s.Client used here.
type getter interface {
	Get(ctx context.Context, ref k8s.Ref) (*unstructured.Unstructured, error)
}

// resolve replaces a host that names a Service with the Service's ClusterIP. All other
// hosts are left to DNS.
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

// serviceOf parses the DNS name of a Service: name.namespace.svc[.domain].
func serviceOf(host string) (name, namespace string, ok bool) {
	parts := strings.SplitN(host, ".", 4)
	if len(parts) < 3 || parts[2] != "svc" || parts[0] == "" || parts[1] == "" {
		return "", "", false
	}
	return parts[0], parts[1], true
}

// dialErrors holds the last connection errors, which gRPC does not return: requests
// run into their timeout instead. It is safe for concurrent use.
type dialErrors struct {
	mu     sync.Mutex
	byStep map[string]error
}

func newDialErrors() *dialErrors { return &dialErrors{byStep: map[string]error{}} }

// set records the error of a step, such as dialling an address; nil clears it.
func (f *dialErrors) set(step string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		delete(f.byStep, step)
		return
	}
	f.byStep[step] = err
}

// first returns one of the errors, or nil.
func (f *dialErrors) first() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, err := range f.byStep {
		return err
	}
	return nil
}
