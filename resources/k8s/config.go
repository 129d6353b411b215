// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
)

// Config says which API server to talk to, and how. See
// docs/wire/operator-shell.md, section Kubernetes client.
type Config struct {
	EnableK8s              bool `flag:"enable-k8s"`
	EnableK8sAPIDiscovery  bool `flag:"enable-k8s-api-discovery"`
	K8sAPIServer           string
	K8sAPIServerURLs       []string `flag:"k8s-api-server-urls"`
	K8sKubeconfigPath      string
	K8sConnectionTimeout   time.Duration `flag:"k8s-client-connection-timeout"`
	K8sConnectionKeepAlive time.Duration `flag:"k8s-client-connection-keep-alive"`
	K8sHeartbeatTimeout    time.Duration
	QPS                    float32 `flag:"operator-k8s-client-qps"`
	Burst                  int     `flag:"operator-k8s-client-burst"`
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

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.Bool("enable-k8s", c.EnableK8s, "Use the Kubernetes API")
	fs.Bool("enable-k8s-api-discovery", c.EnableK8sAPIDiscovery, "Accepted; the API is always discovered")
	fs.String("k8s-api-server", c.K8sAPIServer, "URL of the API server")
	fs.StringSlice("k8s-api-server-urls", c.K8sAPIServerURLs, "URLs of API servers; the next one is used when one fails")
	fs.String("k8s-kubeconfig-path", c.K8sKubeconfigPath, "Kubeconfig file")
	fs.Duration("k8s-client-connection-timeout", c.K8sConnectionTimeout, "How long connecting to the API server may take")
	fs.Duration("k8s-client-connection-keep-alive", c.K8sConnectionKeepAlive, "Time between keep-alive probes of a connection to the API server")
	fs.Duration("k8s-heartbeat-timeout", c.K8sHeartbeatTimeout, "Without a successful request for this long the API server is probed, and connections are made anew when that fails; 0 turns it off")
	fs.Float32("operator-k8s-client-qps", c.QPS, "Requests per second to the API server, shared fairly by all modules")
	fs.Int("operator-k8s-client-burst", c.Burst, "Requests to the API server at once")
}

// Validate implements the check of config structs.
func (c Config) Validate() error {
	switch {
	case !c.EnableK8s:
		return nil
	case c.QPS < 0:
		return cell.Invalid("operator-k8s-client-qps", "must not be negative; 0 means no limit")
	case c.Burst < 1 && c.QPS > 0:
		return cell.Invalid("operator-k8s-client-burst", "must be at least 1")
	case c.K8sConnectionTimeout < 0:
		return cell.Invalid("k8s-client-connection-timeout", "must not be negative")
	case c.K8sHeartbeatTimeout < 0:
		return cell.Invalid("k8s-heartbeat-timeout", "must not be negative; 0 turns the heartbeat off")
	case c.K8sKubeconfigPath != "": // it alone names the server
		return nil
	}
	for _, server := range c.servers() {
		if !isServer(withScheme(server)) {
			return cell.Invalid(c.serverFlag(), "%q is no address of an API server; https://host:port, http://host:port and host:port (plain HTTP) are", server)
		}
	}
	return nil
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
