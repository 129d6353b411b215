// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
)

// clouds are those of Azure, by the names that instance metadata has for them.
var clouds = map[string]cloud.Configuration{
	"AzurePublicCloud":       cloud.AzurePublic,
	"AzureUSGovernmentCloud": cloud.AzureGovernment,
	"AzureChinaCloud":        cloud.AzureChina,
}

const (
	metadataHost    = "169.254.169.254"
	metadataTimeout = 10 * time.Second
)

// settings are where the cluster's machines are.
type settings struct {
	cloud               cloud.Configuration
	subscription, group string
}

// settings are the options, and what instance metadata has where they are empty.
func (p *provider) settings(ctx context.Context) (s settings, err error) {
	name := p.config.AzureCloudName
	s.subscription, s.group = p.config.AzureSubscriptionID, p.config.AzureResourceGroup
	for _, missing := range []struct {
		value       *string
		field, flag string
	}{
		{&name, "azEnvironment", "azure-cloud-name"},
		{&s.subscription, "subscriptionId", "azure-subscription-id"},
		{&s.group, "resourceGroupName", "azure-resource-group"},
	} {
		if *missing.value != "" {
			continue
		}
		if *missing.value, err = p.metadata(ctx, missing.field); err != nil {
			return s, fmt.Errorf("reading %s from instance metadata: %w; --%s sets it", missing.field, err, missing.flag)
		}
	}
	known := false
	if s.cloud, known = clouds[name]; !known {
		return s, fmt.Errorf("instance metadata names the cloud %q, which is not known; --azure-cloud-name sets another", name)
	}
	return s, nil
}

// maxMetadata is more than a field of the metadata has.
const maxMetadata = 64 << 10

// metadata reads a field of the metadata of the operator's own instance.
func (p *provider) metadata(ctx context.Context, field string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	to := url.URL{Scheme: "http", Host: metadataHost, Path: "/metadata/instance/compute/" + field, RawQuery: "api-version=2019-06-01&format=text"}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Metadata", "true")
	resp, err := pass{server: p.Server, next: p.Network, operation: "InstanceMetadata.Get"}.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the answer is %s", resp.Status)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxMetadata))
	value := strings.TrimSpace(string(text))
	if err == nil && value == "" {
		return "", fmt.Errorf("the answer is empty")
	}
	return value, err
}
