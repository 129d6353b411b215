// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"net"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
)

// Config says what is served where.
type Config struct {
	OperatorAPIServeAddr               string
	EnableCiliumOperatorServerAccess   []string
	EnableMetrics                      bool
	OperatorPrometheusServeAddr        string
	OperatorPrometheusEnableTLS        bool     `flag:"operator-prometheus-enable-tls"`
	OperatorPrometheusTLSCertFile      string   `flag:"operator-prometheus-tls-cert-file"`
	OperatorPrometheusTLSKeyFile       string   `flag:"operator-prometheus-tls-key-file"`
	OperatorPrometheusTLSClientCAFiles []string `flag:"operator-prometheus-tls-client-ca-files"`
	OperatorPprof                      bool
	OperatorPprofAddress               string
	OperatorPprofPort                  uint16
	OperatorPprofBlockProfileRate      int
	OperatorPprofMutexProfileFraction  int
	EnableGops                         bool
	GopsPort                           uint16
	OperatorSockPath                   string
}

var defaults = Config{
	OperatorAPIServeAddr:             "localhost:9234",
	EnableCiliumOperatorServerAccess: []string{"*"},
	OperatorPrometheusServeAddr:      ":9963",
	OperatorPprofAddress:             "localhost",
	OperatorPprofPort:                6061,
	EnableGops:                       true,
	GopsPort:                         9891,
	OperatorSockPath:                 "/var/run/cilium/operator.sock",
}

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.String("operator-api-serve-addr", c.OperatorAPIServeAddr, "Address of the health API; empty for free ports on 127.0.0.1 and ::1")
	fs.StringSlice("enable-cilium-operator-server-access", c.EnableCiliumOperatorServerAccess, "Parts of the health API that are served: GetHealthz, GetMetrics, GetCluster, with * at the end for several")
	fs.Bool("enable-metrics", c.EnableMetrics, "Serve metrics to Prometheus")
	fs.String("operator-prometheus-serve-addr", c.OperatorPrometheusServeAddr, "Address of the metrics")
	fs.Bool("operator-prometheus-enable-tls", c.OperatorPrometheusEnableTLS, "Serve metrics over TLS")
	fs.String("operator-prometheus-tls-cert-file", c.OperatorPrometheusTLSCertFile, "Certificate of the metrics server; read again when it changes")
	fs.String("operator-prometheus-tls-key-file", c.OperatorPrometheusTLSKeyFile, "Key of the metrics server; read again when it changes")
	fs.StringSlice("operator-prometheus-tls-client-ca-files", c.OperatorPrometheusTLSClientCAFiles, "Authorities of the clients that may read metrics; empty lets anybody")
	fs.Bool("operator-pprof", c.OperatorPprof, "Serve profiles")
	fs.String("operator-pprof-address", c.OperatorPprofAddress, "Host that profiles are served on")
	fs.Uint16("operator-pprof-port", c.OperatorPprofPort, "Port that profiles are served on")
	fs.Int("operator-pprof-block-profile-rate", c.OperatorPprofBlockProfileRate, "Nanoseconds of blocking per sample of the block profile; 0 turns it off")
	fs.Int("operator-pprof-mutex-profile-fraction", c.OperatorPprofMutexProfileFraction, "One in this many events goes into the mutex profile; 0 turns it off")
	fs.Bool("enable-gops", c.EnableGops, "Let the gops tool look at the process")
	fs.Uint16("gops-port", c.GopsPort, "Port on 127.0.0.1 for the gops tool")
	fs.String("operator-sock-path", c.OperatorSockPath, "Unix socket for the status command; empty for none")
}

// apis are the parts of the health API that access can be given to.
var apis = []string{"GetHealthz", "GetMetrics", "GetCluster"}

// Validate implements the check of config structs.
func (c Config) Validate() error {
	for _, pattern := range c.EnableCiliumOperatorServerAccess {
		if !slices.ContainsFunc(apis, func(api string) bool { return accessMatches(pattern, api) }) {
			return cell.Invalid("enable-cilium-operator-server-access", "must name parts of the API (%v), or several with a * at the end; %q is none", apis, pattern)
		}
	}
	for _, a := range [][2]string{{"operator-api-serve-addr", c.OperatorAPIServeAddr}, {"operator-prometheus-serve-addr", c.OperatorPrometheusServeAddr}} {
		if _, _, err := net.SplitHostPort(a[1]); a[1] != "" && err != nil {
			return cell.Invalid(a[0], "must be host:port: %v", err)
		}
	}
	if c.OperatorPrometheusEnableTLS && (c.OperatorPrometheusTLSCertFile == "" || c.OperatorPrometheusTLSKeyFile == "") {
		return cell.Invalid("operator-prometheus-enable-tls", "needs --operator-prometheus-tls-cert-file and --operator-prometheus-tls-key-file")
	}
	return nil
}

// allowed reports whether a part of the health API is served.
func (c Config) allowed(api string) bool {
	return slices.ContainsFunc(c.EnableCiliumOperatorServerAccess, func(p string) bool { return accessMatches(p, api) })
}

// accessMatches reports whether a pattern names a part: by its name, or by how
// it begins and a * at the end.
func accessMatches(pattern, api string) bool {
	if start, several := strings.CutSuffix(pattern, "*"); several {
		return strings.HasPrefix(api, start)
	}
	return pattern == api
}
