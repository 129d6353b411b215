// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/skep-operator/skep/runtime/cell"
)

// Config says which API server to talk to, and how. See
// docs/wire/k8s.md.
type Config struct {
	EnableK8s              bool          `flag:"enable-k8s" usage:"Use the Kubernetes API"`
	EnableK8sAPIDiscovery  bool          `flag:"enable-k8s-api-discovery" usage:"No effect; API discovery is always on"`
	K8sAPIServer           string        `flag:"k8s-api-server" usage:"URL of the API server"`
	K8sAPIServerURLs       []string      `flag:"k8s-api-server-urls" usage:"URLs of API servers; if one fails, the next is used"`
	K8sKubeconfigPath      string        `flag:"k8s-kubeconfig-path" usage:"Path of the kubeconfig file"`
	K8sConnectionTimeout   time.Duration `flag:"k8s-client-connection-timeout" usage:"Timeout of connecting to the API server, at least 100ms; 0 is no timeout"`
	K8sConnectionKeepAlive time.Duration `flag:"k8s-client-connection-keep-alive" usage:"Interval between TCP keep-alive probes to the API server, at least 1s; 0 is the system's default, a negative value disables them"`
	K8sHeartbeatTimeout    time.Duration `flag:"k8s-heartbeat-timeout" usage:"Time without a successful request after which the API server is probed, and connections are closed if the probe fails; at least 100ms, 0 disables it"`
	QPS                    float32       `flag:"operator-k8s-client-qps" usage:"Maximum requests per second to the API server, shared fairly by all modules"`
	Burst                  int           `flag:"operator-k8s-client-burst" usage:"Maximum burst of requests to the API server"`
}

// DefaultConfig is what the flags default to.
var DefaultConfig = Config{
	EnableK8s:              true,
	K8sConnectionTimeout:   30 * time.Second,
	K8sConnectionKeepAlive: 30 * time.Second,
	K8sHeartbeatTimeout:    30 * time.Second,
	QPS:                    100,
	Burst:                  200,
}

// shortestTimeout is less than a connection to another machine is worth waiting for.
const shortestTimeout = 100 * time.Millisecond

// Validate implements the check of config structs.
func (c Config) Validate() error {
	switch {
	case !c.EnableK8s:
		return nil
	case c.QPS < 0:
		return cell.Invalid("operator-k8s-client-qps", "must not be negative; 0 means no limit")
	case c.Burst < 1 && c.QPS > 0:
		return cell.Invalid("operator-k8s-client-burst", "must be at least 1")
	case c.K8sConnectionKeepAlive > 0 && c.K8sConnectionKeepAlive < time.Second:
		return cell.Invalid("k8s-client-connection-keep-alive", "must be at least 1s, or 0 for the system's, or negative for none")
	}
	err := errors.Join(
		checkTimeout("k8s-client-connection-timeout", c.K8sConnectionTimeout, "means any time"),
		checkTimeout("k8s-heartbeat-timeout", c.K8sHeartbeatTimeout, "turns the heartbeat off"),
	)
	if err != nil || c.K8sKubeconfigPath != "" { // which alone names the server
		return err
	}
	for _, server := range c.servers() {
		if !isServer(withScheme(server)) {
			return cell.Invalid(c.serverFlag(), "%q is no address of an API server; https://host:port, http://host:port and host:port (plain HTTP) are", server)
		}
	}
	return nil
}

// checkTimeout returns an error for a timeout that is too short. It is no tag of the
// config, which would count without Kubernetes, too. zero is what 0 does.
func checkTimeout(flag string, timeout time.Duration, zero string) error {
	if timeout == 0 || timeout >= shortestTimeout {
		return nil
	}
	return cell.Invalid(flag, "must be at least %s, or 0, which %s", shortestTimeout, zero)
}

// serverFlag is the option that names the API server, or should.
func (c Config) serverFlag() string {
	switch {
	case c.K8sKubeconfigPath != "" || len(c.servers()) == 0:
		return "k8s-kubeconfig-path"
	case len(c.K8sAPIServerURLs) > 0:
		return "k8s-api-server-urls"
	}
	return "k8s-api-server"
}

// servers are the API servers named by flags, as they are spelled there.
func (c Config) servers() []string {
	if len(c.K8sAPIServerURLs) == 0 && c.K8sAPIServer != "" {
		return []string{c.K8sAPIServer}
	}
	return c.K8sAPIServerURLs
}

// withScheme is the URL of a server: one without a scheme speaks plain HTTP.
func withScheme(server string) string {
	if !strings.Contains(server, "://") {
		return "http://" + server
	}
	return server
}

func isServer(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && !strings.HasSuffix(u.Host, ":")
}

// InUse is the condition of what needs the Kubernetes API.
var InUse = cell.When("the Kubernetes API is in use", []string{"enable-k8s"}, func(c Config) bool { return c.EnableK8s })
