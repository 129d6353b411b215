// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"

	"github.com/skep-operator/skep/runtime/cell"
)

// restConfig finds the API server: the kubeconfig, the URL flag, or the
// service account of the pod, in this order.
func restConfig(c Config) (*rest.Config, error) {
	urls := c.urls()
	if c.K8sKubeconfigPath != "" {
		loaded, err := clientcmd.BuildConfigFromFlags("", c.K8sKubeconfigPath)
		if clientcmd.IsEmptyConfig(err) {
			return nil, cell.Invalid("k8s-kubeconfig-path", "%s names no cluster", c.K8sKubeconfigPath)
		}
		if err != nil {
			return nil, cell.Invalid("k8s-kubeconfig-path", "reading %s: %v%s", c.K8sKubeconfigPath, err, permissionHint(c.K8sKubeconfigPath))
		}
		return loaded, nil
	}
	if len(urls) > 0 {
		if !strings.HasPrefix(urls[0], "https://") {
			return &rest.Config{Host: urls[0]}, nil
		}
		inCluster, err := rest.InClusterConfig()
		if err != nil {
			return nil, cell.Invalid(c.serverFlag(), "%s needs the service account of a pod, and there is none: %v; set --k8s-kubeconfig-path elsewhere", urls[0], err)
		}
		inCluster.Host = urls[0]
		return inCluster, nil
	}
	inCluster, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, cell.Invalid(c.serverFlag(), "no API server is known: set --k8s-kubeconfig-path or --k8s-api-server, or run in a pod")
	}
	if err != nil {
		return nil, cell.Invalid(c.serverFlag(), "without it and --k8s-api-server the pod's service account says where the API server is, and reading that failed: %v", err)
	}
	return inCluster, nil
}

// permissionHint says what to do about a file that this user may not read. clientcmd does
// not wrap the error.
func permissionHint(path string) string {
	f, err := os.Open(path)
	if err == nil {
		f.Close()
	}
	if !errors.Is(err, fs.ErrPermission) {
		return ""
	}
	return fmt.Sprintf("; this process runs as user %d: run it as one that may read the file (securityContext.runAsUser)", os.Getuid())
}

// urls are the API servers named by flags.
func (c Config) urls() []string {
	var urls []string
	for _, server := range c.servers() {
		urls = append(urls, withScheme(server))
	}
	return urls
}

// dialer makes transports to the API server. Each transport has connections
// of its own.
type dialer struct {
	config      Config
	tls         *tls.Config
	credentials *transport.Config
	plugin      *execPlugin // nil without one
}

func newDialer(c Config, base *rest.Config) (*dialer, error) {
	tc, err := base.TransportConfig()
	if err != nil {
		return nil, cell.Invalid(c.serverFlag(), "reading credentials: %v", err)
	}
	tlsConfig, err := transport.TLSConfigFor(tc)
	if err != nil {
		return nil, cell.Invalid(c.serverFlag(), "reading certificates: %v", err)
	}
	if file := authorityFile(base); file != "" && tlsConfig != nil {
		trustFile(tlsConfig, file)
	}
	d := &dialer{config: c, tls: tlsConfig, credentials: tc}
	if d.plugin, err = newExecPlugin(base, tc); err != nil || d.plugin == nil {
		return d, err
	}
	// What the plugin gives is added apart from the rest.
	rest := *base
	rest.ExecProvider = nil
	d.credentials, err = rest.TransportConfig()
	return d, err
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: d.config.K8sConnectionTimeout, KeepAlive: d.config.K8sConnectionKeepAlive}).DialContext(ctx, network, address)
}

// transport sends requests, with credentials, over connections that dial makes.
func (d *dialer) transport(dial connrotation.DialFunc) (http.RoundTripper, error) {
	plain := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dial,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 25,
		IdleConnTimeout:     90 * time.Second,
	}
	if d.credentials.Proxy != nil { // the kubeconfig's
		plain.Proxy = d.credentials.Proxy
	}
	if d.tls != nil {
		plain.TLSClientConfig = d.tls.Clone()
	}
	if os.Getenv("DISABLE_HTTP2") == "" {
		plain.ForceAttemptHTTP2 = true
		// A connection that went silent is found out by pings, not by requests
		// that hang on it.
		plain.HTTP2 = &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 10 * time.Second}
	} else {
		protocols := &http.Protocols{}
		protocols.SetHTTP1(true)
		plain.Protocols = protocols
	}
	wrapped, err := transport.HTTPWrappersForConfig(d.credentials, plain)
	if err != nil {
		return nil, fmt.Errorf("reading credentials: %w", err)
	}
	if d.plugin != nil {
		wrapped = d.plugin.before(wrapped)
	}
	return wrapped, nil
}
