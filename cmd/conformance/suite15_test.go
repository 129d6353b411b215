// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

//go:build gateway15

package conformance

import (
	"os"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	suite "sigs.k8s.io/gateway-api/conformance"
	report "sigs.k8s.io/gateway-api/conformance/apis/v1"
	options "sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

// runSuite runs the suite of Gateway API 1.5, whose options have other types.
func runSuite(t *testing.T, c client.Client, core kubernetes.Interface, config *rest.Config, about report.Implementation, supported []features.FeatureName) {
	o := options.ConformanceOptions{Client: c, ClientOptions: client.Options{Scheme: c.Scheme()}, Clientset: core, RestConfig: config}
	o.GatewayClassName, o.Mode, o.RunTest, o.Implementation = className, "default", os.Getenv("SKEP_CONFORMANCE_RUN"), about
	o.TimeoutConfig, o.ReportOutputPath = timeouts(), os.Getenv("SKEP_CONFORMANCE_REPORT")
	o.TimeoutConfig.DefaultPollInterval = 500 * time.Millisecond // some tests look at a ListenerSet once, as soon as its Gateway has a status
	o.UsableNetworkAddresses, o.UnusableNetworkAddresses = address(usableAddress), address(unusableAddress)
	o.CleanupBaseResources, o.SupportedFeatures = true, sets.New(supported...)
	o.ConformanceProfiles = sets.New(
		options.GatewayHTTPConformanceProfileName, options.GatewayGRPCConformanceProfileName, options.GatewayTLSConformanceProfileName,
	)
	suite.RunConformanceWithOptions(t, o)
}
