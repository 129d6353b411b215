// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package controlplane

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/skep-operator/skep/cmd/devcluster/internal/port"
)

// TokenLifetime is how long service account tokens are asked for.
const TokenLifetime = 365 * 24 * time.Hour

// Options describe a control plane.
type Options struct {
	Identity      *Identity
	EtcdEndpoints []string
	// AuditLog is the file that gets a line per request, at AuditLevel.
	AuditLog, AuditLevel string
	// LogFile is where LogTo sends what is logged, for messages.
	LogFile string
	// FeatureGates are of the form Name=true,Name=false.
	FeatureGates string
}

// ControlPlane is an API server, a controller manager and a garbage collector.
type ControlPlane struct {
	opts     Options
	identity *Identity
	port     *port.Port

	mu        sync.Mutex
	server    *component // nil while stopped
	manager   *component
	collector *component

	failed chan error
}

// Start runs a control plane and returns when it takes work: the API server is
// ready and the default service account exists.
func Start(ctx context.Context, opts Options) (*ControlPlane, error) {
	if err := setUpProcess(opts); err != nil {
		return nil, err
	}
	policy := []byte(auditPolicy(opts.AuditLevel))
	if err := os.WriteFile(opts.Identity.file("audit-policy.yaml"), policy, 0o600); err != nil {
		return nil, fmt.Errorf("write the audit policy: %w", err)
	}
	reserved, err := port.Reserve()
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{opts: opts, identity: opts.Identity, port: reserved, failed: make(chan error, 1)}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Stop(ctx))
	}
	return c, nil
}

func (c *ControlPlane) start(ctx context.Context) error {
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	if err := c.startControllerManager(); err != nil {
		return err
	}
	c.collector = run("garbage collector", c.failed, c.runGarbageCollector)
	return c.awaitDefaults(ctx)
}

// defaultGates disable what makes the API server cache all pods for a feature that is not
// used here. The controller manager of an old Kubernetes enables WatchListClient where it
// is not enabled, which panics beside an API server.
const defaultGates = "DRAExtendedResource=false,WatchListClient=true"

// setUpProcess sets what Kubernetes keeps per process.
func setUpProcess(opts Options) error {
	gates := pflag.NewFlagSet("feature gates", pflag.ContinueOnError)
	compatibility.DefaultComponentGlobalsRegistry.AddFlags(gates)
	wanted := strings.Trim(defaultGates+","+opts.FeatureGates, ",")
	if err := gates.Set("feature-gates", wanted); err != nil {
		return fmt.Errorf("parse the feature gates %q: %w", wanted, err)
	}
	if err := compatibility.DefaultComponentGlobalsRegistry.Set(); err != nil {
		return fmt.Errorf("set the feature gates %q: %w", wanted, err)
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	return nil
}

// LogTo sends what Kubernetes' libraries log in this process to a writer, from
// now on.
func LogTo(w io.Writer) error {
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	for name, value := range map[string]string{"logtostderr": "false", "one_output": "true", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			return fmt.Errorf("set the log flag %s: %w", name, err)
		}
	}
	klog.SetOutput(w)
	return nil
}

// URL is the API server's, the same as long as the control plane lives.
func (c *ControlPlane) URL() string { return "https://" + c.port.Address() }

// awaitDefaults waits for the default objects that controllers create.
func (c *ControlPlane) awaitDefaults(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.adminConfig())
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	for {
		_, err = client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err == nil {
			_, err = client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		}
		if err == nil {
			return nil
		}
		select {
		case <-c.manager.done:
			return fmt.Errorf("the controller manager ended: %w, see %s", c.manager.err, c.opts.LogFile)
		case <-ctx.Done():
			return fmt.Errorf("wait for the default service account: %w", errors.Join(context.Cause(ctx), err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Failed yields the error of a component that ended by itself.
func (c *ControlPlane) Failed() <-chan error { return c.failed }

// Stop stops all components. A component that is still at it when ctx is done
// is left to end with the process, and is no error.
func (c *ControlPlane) Stop(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	running := slices.DeleteFunc([]*component{c.collector, c.manager, c.server}, func(one *component) bool { return one == nil })
	c.server = nil
	for _, one := range running {
		one.cancel()
	}
	var errs []error
	for _, one := range running {
		if err := one.stop(ctx); ctx.Err() == nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, c.port.Close())...)
}

// ServiceAccountToken asks the API server for a token of a service account that
// exists.
func (c *ControlPlane) ServiceAccountToken(ctx context.Context, namespace, name string, lifetime time.Duration) (string, error) {
	client, err := kubernetes.NewForConfig(c.adminConfig())
	if err != nil {
		return "", fmt.Errorf("make a client: %w", err)
	}
	seconds := int64(lifetime.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	answer, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("get a token of service account %s/%s: %w", namespace, name, err)
	}
	return answer.Status.Token, nil
}
