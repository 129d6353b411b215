// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"
)

// serviceCIDRs are the ranges of cluster IPs, first the primary one.
const serviceCIDRs = "172.20.0.0/16,fd00:20::/112"

// drainTime is the time that a stopping API server has for requests in progress.
// Watches never end by themselves.
const drainTime = 500 * time.Millisecond

// disabledAdmission are plugins that need a controller that does not run here, to
// remove taints and finalizers or to count quotas, or that cache all pods for policies
// that no namespace here has. An old API server does not know all of them.
var disabledAdmission = slices.DeleteFunc([]string{
	"TaintNodesByCondition", "StorageObjectInUseProtection", "PodGroupProtection", "ResourceQuota", "PodSecurity",
}, func(plugin string) bool { return !slices.Contains(kubeoptions.AllOrderedPlugins, plugin) })

// apiServerArgs are the flags of the API server. The feature gates are left
// out: they belong to the process and are set once.
func (c *ControlPlane) apiServerArgs() []string {
	file := c.identity.file
	return []string{
		"--etcd-servers=" + strings.Join(c.opts.EtcdEndpoints, ","),
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none", // loopback is not reachable through a service
		"--service-cluster-ip-range=" + serviceCIDRs,
		"--tls-cert-file=" + file("apiserver.crt"),
		"--tls-private-key-file=" + file("apiserver.key"),
		"--client-ca-file=" + file("ca.crt"),
		"--token-auth-file=" + file("tokens.csv"),
		"--requestheader-client-ca-file=" + file("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + file("sa.pub"),
		"--service-account-signing-key-file=" + file("sa.key"),
		"--service-account-max-token-expiration=" + (2 * TokenLifetime).String(),
		"--authorization-mode=RBAC",
		"--disable-admission-plugins=" + strings.Join(disabledAdmission, ","),
		"--audit-policy-file=" + file("audit-policy.yaml"),
		"--audit-log-path=" + c.opts.AuditLog,
		"--audit-log-mode=blocking", // an answered request is in the log
		"--audit-log-maxsize=0",     // one file
		// Fair, and never the bottleneck.
		"--max-requests-inflight=4000",
		"--max-mutating-requests-inflight=2000",
		"--shutdown-delay-duration=0s",
		"--shutdown-watch-termination-grace-period=0s",
	}
}

// StartAPIServer starts the API server on its port and returns when it is ready.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server != nil {
		return errors.New("the API server runs already: stop it first")
	}
	listener, err := c.port.Listen()
	if err != nil {
		return fmt.Errorf("start the API server: %w", err)
	}
	cuttable := newCutListener(listener)
	c.server = run("API server", c.failed, func(ctx context.Context) error {
		defer listener.Close() // the server does so only if it got that far
		context.AfterFunc(ctx, func() { time.AfterFunc(drainTime, cuttable.cut) })
		return c.runAPIServer(ctx, cuttable)
	})
	if err := c.awaitReady(ctx, c.server); err != nil {
		c.server.cancel()
		c.server = nil
		return fmt.Errorf("start the API server: %w", err)
	}
	return nil
}

// StopAPIServer stops the API server alone and returns when its port refuses
// connections and nothing of it runs any more.
func (c *ControlPlane) StopAPIServer(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server == nil {
		return errors.New("the API server does not run: start it first")
	}
	server := c.server
	c.server = nil
	if err := server.stop(ctx); err != nil {
		return fmt.Errorf("stop the API server: %w", err)
	}
	return nil
}

func (c *ControlPlane) runAPIServer(ctx context.Context, listener net.Listener) error {
	opts := options.NewServerRunOptions()
	flags := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	for _, set := range opts.Flags().FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(c.apiServerArgs()); err != nil {
		return fmt.Errorf("parse the API server's flags: %w", err)
	}
	opts.SecureServing.Listener = listener
	opts.SecureServing.BindPort = listener.Addr().(*net.TCPAddr).Port
	getter, err := c.tokenGetter()
	if err != nil {
		return err
	}
	opts.Authentication.ServiceAccounts.OptionalTokenGetter = getter
	completed, err := opts.Complete(ctx)
	if err != nil {
		return fmt.Errorf("complete the API server's options: %w", err)
	}
	if errs := completed.Validate(); len(errs) != 0 {
		return fmt.Errorf("validate the API server's options: %w", utilerrors.NewAggregate(errs))
	}
	return app.Run(ctx, completed)
}

// awaitReady waits for /readyz.
func (c *ControlPlane) awaitReady(ctx context.Context, server *component) error {
	transport, err := rest.TransportFor(c.adminConfig())
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	client := http.Client{Transport: transport, Timeout: time.Second}
	for {
		if ready(ctx, &client, c.URL()+"/readyz") {
			return nil
		}
		select {
		case <-server.done:
			return fmt.Errorf("it ended: %w, see %s", server.err, c.opts.LogFile)
		case <-ctx.Done():
			return fmt.Errorf("wait for /readyz: %w, see %s", context.Cause(ctx), c.opts.LogFile)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func ready(ctx context.Context, client *http.Client, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// adminConfig returns the administrator's client configuration.
func (c *ControlPlane) adminConfig() *rest.Config {
	return &rest.Config{
		Host:        c.URL(),
		BearerToken: c.identity.AdminToken,
		TLSClientConfig: rest.TLSClientConfig{
			CAFile: filepath.Join(c.identity.dir, "ca.crt"),
		},
	}
}
